"""What tests share: oracles, strategies, messages, and what they run and ask.

Modules of functions as users write them stand beside this package: pipelines of tests name
them as users name theirs, by a plain name.
"""
