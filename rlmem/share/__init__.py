"""Handing on what was trained: files that act without rlmem, and repositories on the Hugging Face Hub."""
