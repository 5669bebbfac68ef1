"""Who this box is to its cloud: enrolment, the certificate and its renewal, and whether this is still that machine."""
