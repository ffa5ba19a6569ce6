"""The Spark data source `headerstate`: state as rows, its changes as rows, and new state from rows."""
