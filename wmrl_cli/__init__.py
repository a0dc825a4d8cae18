"""World Model RL (arXiv 2608.12564): stages that turn Parquet tables into Parquet tables."""

__version__ = "0.1.0"
