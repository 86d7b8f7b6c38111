"""x"""
def play(*a): return 0
