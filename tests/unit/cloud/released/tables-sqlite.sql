-- version 1;
CREATE TABLE alarms (
 number INTEGER NOT NULL, 
 at_s FLOAT NOT NULL, 
 kind VARCHAR(64) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 text TEXT NOT NULL, 
 times BIGINT NOT NULL, 
 seen_by TEXT NOT NULL, 
 PRIMARY KEY (number)
);
CREATE TABLE audit (
 number INTEGER NOT NULL, 
 at_s FLOAT NOT NULL, 
 "by" TEXT NOT NULL, 
 what VARCHAR(64) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 detail JSON NOT NULL, 
 PRIMARY KEY (number)
);
CREATE TABLE births (
 number INTEGER NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 enrolment BIGINT NOT NULL, 
 count BIGINT NOT NULL, 
 nonce VARCHAR(16) NOT NULL, 
 at_s FLOAT NOT NULL, 
 PRIMARY KEY (number), 
 FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE boxes (
 device VARCHAR(16) NOT NULL, 
 name VARCHAR(253) NOT NULL, 
 labels JSON NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 public VARCHAR(43) NOT NULL, 
 host VARCHAR(253) NOT NULL, 
 added_at_s FLOAT NOT NULL, 
 enrolled_at_s FLOAT NOT NULL, 
 enrolment BIGINT NOT NULL, 
 instance VARCHAR(64) NOT NULL, 
 epoch_count BIGINT, 
 epoch_nonce VARCHAR(16), 
 next_seq BIGINT NOT NULL, 
 rev BIGINT NOT NULL, 
 digest VARCHAR(16) NOT NULL, 
 restored BOOLEAN NOT NULL, 
 key_set BIGINT NOT NULL, 
 online BOOLEAN NOT NULL, 
 seen_at_s FLOAT NOT NULL, 
 spec_rev BIGINT NOT NULL, 
 told_rev BIGINT NOT NULL, 
 observed_rev BIGINT NOT NULL, 
 applied_rev BIGINT NOT NULL, 
 look_at_s FLOAT, 
 looks BIGINT NOT NULL, 
 touched BIGINT NOT NULL, 
 PRIMARY KEY (device), 
 UNIQUE (name)
);
CREATE TABLE certificates (
 serial VARCHAR(48) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 enrolment BIGINT NOT NULL, 
 csr_sha256 VARCHAR(64) NOT NULL, 
 pem TEXT NOT NULL, 
 not_before_s FLOAT NOT NULL, 
 not_after_s FLOAT NOT NULL, 
 revoked_at_s FLOAT, 
 PRIMARY KEY (serial)
);
CREATE TABLE commands (
 number INTEGER NOT NULL, 
 id VARCHAR(40) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 op VARCHAR(80) NOT NULL, 
 args JSON NOT NULL, 
 "by" TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 due_at_s FLOAT NOT NULL, 
 cancelled BOOLEAN NOT NULL, 
 seq BIGINT, 
 state VARCHAR(16), 
 code TEXT NOT NULL, 
 text TEXT NOT NULL, 
 data JSON, 
 attempts BIGINT NOT NULL, 
 signed_count BIGINT, 
 signed_nonce VARCHAR(16), 
 quiet_since_s FLOAT NOT NULL, 
 tries BIGINT NOT NULL, 
 stamp_enrolment BIGINT, 
 stamp_count BIGINT, 
 stamp_nonce VARCHAR(16), 
 stamp_n BIGINT, 
 ended BOOLEAN NOT NULL, 
 ended_at_s FLOAT, 
 next_at_s FLOAT, 
 PRIMARY KEY (number), 
 UNIQUE (id), 
 FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE INDEX commands_of_box ON commands (device, ended, number);
CREATE TABLE events (
 number INTEGER NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 kind TEXT NOT NULL, 
 level VARCHAR(16) NOT NULL, 
 text TEXT NOT NULL, 
 about TEXT NOT NULL, 
 box_at BIGINT NOT NULL, 
 at_s FLOAT NOT NULL, 
 PRIMARY KEY (number), 
 FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE history (
 number INTEGER NOT NULL, 
 command VARCHAR(40) NOT NULL, 
 at_s FLOAT NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 code TEXT NOT NULL, 
 text TEXT NOT NULL, 
 PRIMARY KEY (number)
);
CREATE INDEX ix_alarms_device ON alarms (device);
CREATE INDEX ix_audit_device ON audit (device);
CREATE INDEX ix_births_device ON births (device);
CREATE INDEX ix_boxes_instance ON boxes (instance);
CREATE INDEX ix_boxes_look_at_s ON boxes (look_at_s);
CREATE INDEX ix_boxes_touched ON boxes (touched);
CREATE INDEX ix_certificates_csr_sha256 ON certificates (csr_sha256);
CREATE INDEX ix_certificates_device ON certificates (device);
CREATE INDEX ix_commands_ended_at_s ON commands (ended_at_s);
CREATE INDEX ix_commands_next_at_s ON commands (next_at_s);
CREATE INDEX ix_events_device ON events (device);
CREATE INDEX ix_history_command ON history (command);
CREATE INDEX ix_requests_state ON requests (state);
CREATE INDEX ix_requests_token ON requests (token);
CREATE TABLE key_sets (
 version BIGINT NOT NULL, 
 text TEXT NOT NULL, 
 sig VARCHAR(86) NOT NULL, 
 PRIMARY KEY (version)
);
CREATE TABLE latest (
 device VARCHAR(16) NOT NULL, 
 kind VARCHAR(32) NOT NULL, 
 enrolment BIGINT NOT NULL, 
 count BIGINT NOT NULL, 
 nonce VARCHAR(16) NOT NULL, 
 n BIGINT NOT NULL, 
 at_s FLOAT NOT NULL, 
 body JSON NOT NULL, 
 PRIMARY KEY (device, kind), 
 FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE meta (
 "key" VARCHAR(64) NOT NULL, 
 value BIGINT NOT NULL, 
 PRIMARY KEY ("key")
);
CREATE TABLE orphans (
 device VARCHAR(16) NOT NULL, 
 id VARCHAR(40) NOT NULL, 
 op VARCHAR(80) NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 code TEXT NOT NULL, 
 text TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 PRIMARY KEY (device, id), 
 FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE requests (
 id VARCHAR(64) NOT NULL, 
 token VARCHAR(64) NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 digest VARCHAR(64) NOT NULL, 
 asked JSON NOT NULL, 
 answer JSON, 
 device VARCHAR(16), 
 at_s FLOAT NOT NULL, 
 PRIMARY KEY (id)
);
CREATE TABLE specs (
 device VARCHAR(16) NOT NULL, 
 rev BIGINT NOT NULL, 
 spec JSON NOT NULL, 
 at_s FLOAT NOT NULL, 
 "by" TEXT NOT NULL, 
 PRIMARY KEY (device, rev), 
 FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE tokens (
 digest VARCHAR(64) NOT NULL, 
 label TEXT NOT NULL, 
 "by" TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 expires_at_s FLOAT NOT NULL, 
 uses BIGINT NOT NULL, 
 used BIGINT NOT NULL, 
 approval BOOLEAN NOT NULL, 
 name TEXT NOT NULL, 
 labels JSON NOT NULL, 
 revoked BOOLEAN NOT NULL, 
 PRIMARY KEY (digest)
);
