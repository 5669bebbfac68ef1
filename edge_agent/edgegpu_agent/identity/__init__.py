"""The box's identity in its cloud: enrolment, the certificate and its renewal, and the detection of copied disks."""
