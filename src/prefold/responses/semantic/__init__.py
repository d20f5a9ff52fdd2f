"""Answers by meaning: a question that was answered in other words, served only once that was shown to be right."""
