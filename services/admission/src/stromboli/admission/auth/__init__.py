"""Who asks: principals, their authentication and their authorization."""
