"""Programs that show Tidelog at work; each is run by a test."""
