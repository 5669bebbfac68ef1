"""What pods may choose of how their containers are held, and what kubelet was answered for them."""
