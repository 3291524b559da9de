"""How fast each part is, beside what the machine could do at best."""
