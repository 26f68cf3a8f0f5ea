"""What a hospital's operator allows, what is written down of each request, and the folder where both lie."""
