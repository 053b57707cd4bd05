"""remat in other libraries' training loops. Each module needs its library; importing remat needs none of them."""
