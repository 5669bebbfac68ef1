"""The node's self-test: does the limiter hold on this machine's cards, and does it stop no program?"""
