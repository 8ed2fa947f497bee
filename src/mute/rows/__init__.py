"""Where rows are, how they are checked at the door, and how a fit passes over them."""
