"""What a comparison came to, for people and for programs: one page of HTML and two tables."""
