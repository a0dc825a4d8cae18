"""Language models behind one protocol: token ids in, token ids and log-probabilities out."""
