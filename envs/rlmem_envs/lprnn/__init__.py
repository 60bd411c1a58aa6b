"""Board games of the low-pass recurrent network paper."""
