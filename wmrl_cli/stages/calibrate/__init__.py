"""calibrate: pairs of predicted and real scores -> the map between them, and how far to trust it."""
