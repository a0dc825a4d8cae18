"""What is said to the model in both of its roles, agent and world model."""
