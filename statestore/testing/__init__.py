"""What tests and demos of stateful jobs need beside the job itself; public, and never used by the job."""
