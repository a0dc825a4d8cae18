"""Running an untrusted script: one fresh sandbox each, evidence of how it ended, nothing left behind."""
