"""Bulk jobs: every row of an input to a row of an output file, in constant memory; they can be killed and continued."""
