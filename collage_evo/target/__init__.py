"""What code is compiled for and latency is measured on, and how to have it to oneself."""
