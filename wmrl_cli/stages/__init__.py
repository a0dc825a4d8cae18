"""Table in, table out; effects are given as arguments."""
