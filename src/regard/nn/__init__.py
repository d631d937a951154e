"""The modules that every model is built from. They work on tensors and do not depend on text, files or tasks.

Shapes, here and in `models`:

    B batch   T queries   S keys   H heads   D head width   W width   V vocabulary   N tokens of a packed batch
"""
