"""What a person writes about a TPU platform, and everything that follows from it.

Pure Python and pydantic; imports nothing of Pulumi. Read `platform` (the whole), `slice` and `capacity` (what a person
writes), `slices` (what is derived), `catalogue` and `topology` (hardware facts), `rules` (what is refused, and why).
"""
