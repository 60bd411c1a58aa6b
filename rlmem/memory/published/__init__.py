"""What published code computes in place of a model's equations, where that fills a file of its own."""
