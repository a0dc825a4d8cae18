"""One module per subcommand: parse, call, render."""
