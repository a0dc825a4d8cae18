"""Arrays in, arrays out: no file, terminal, model or torch in this room."""
