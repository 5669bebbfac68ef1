-- version 22;
CREATE TABLE accounts (
 name VARCHAR(64) NOT NULL, 
 password VARCHAR(255) NOT NULL, 
 role VARCHAR(16) NOT NULL, 
 scope TEXT NOT NULL, 
 disabled BOOLEAN NOT NULL, 
 language VARCHAR(8) NOT NULL, 
 created_at_s FLOAT NOT NULL, 
 password_at_s FLOAT NOT NULL, 
 CONSTRAINT pk_accounts PRIMARY KEY (name)
);
CREATE TABLE alarms (
 number INTEGER NOT NULL, 
 at_s FLOAT NOT NULL, 
 kind VARCHAR(64) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 text TEXT NOT NULL, 
 times BIGINT NOT NULL, 
 seen_by TEXT NOT NULL, phrase JSON, 
 CONSTRAINT pk_alarms PRIMARY KEY (number)
);
CREATE TABLE alembic_version (
 version_num VARCHAR(32) NOT NULL, 
 CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE alert_deliveries (
 number INTEGER NOT NULL, 
 id VARCHAR(36) NOT NULL, 
 url VARCHAR(1000) NOT NULL, 
 body TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 tries BIGINT NOT NULL, 
 next_at_s FLOAT NOT NULL, 
 error TEXT NOT NULL, 
 CONSTRAINT pk_alert_deliveries PRIMARY KEY (number)
);
CREATE TABLE alerts (
 number INTEGER NOT NULL, 
 open_key VARCHAR(400), 
 kind VARCHAR(32) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 about VARCHAR(253) NOT NULL, 
 text TEXT NOT NULL, 
 since_s FLOAT NOT NULL, 
 firing_at_s FLOAT, 
 clear_since_s FLOAT, 
 resolved_at_s FLOAT, 
 silenced_until_s FLOAT NOT NULL, 
 silenced_by TEXT NOT NULL, phrase JSON, 
 CONSTRAINT pk_alerts PRIMARY KEY (number), 
 CONSTRAINT uq_alerts_open_key UNIQUE (open_key)
);
CREATE TABLE api_tokens (
 digest VARCHAR(64) NOT NULL, 
 account VARCHAR(64) NOT NULL, 
 name VARCHAR(64) NOT NULL, 
 role VARCHAR(16) NOT NULL, 
 scope TEXT NOT NULL, 
 created_at_s FLOAT NOT NULL, 
 expires_at_s FLOAT NOT NULL, 
 used_at_s FLOAT NOT NULL, 
 CONSTRAINT pk_api_tokens PRIMARY KEY (digest), 
 CONSTRAINT fk_api_tokens_account_accounts FOREIGN KEY(account) REFERENCES accounts (name), 
 CONSTRAINT uq_api_tokens_account_name UNIQUE (account, name)
);
CREATE TABLE audit (
 number INTEGER NOT NULL, 
 at_s FLOAT NOT NULL, 
 "by" TEXT NOT NULL, 
 what VARCHAR(64) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 detail JSON NOT NULL, part_of VARCHAR(64), 
 CONSTRAINT pk_audit PRIMARY KEY (number)
);
CREATE INDEX audit_by_part ON audit (part_of, number);
CREATE INDEX audit_by_time ON audit (at_s, part_of, number);
CREATE TABLE births (
 number INTEGER NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 enrolment BIGINT NOT NULL, 
 count BIGINT NOT NULL, 
 nonce VARCHAR(16) NOT NULL, 
 at_s FLOAT NOT NULL, 
 CONSTRAINT pk_births PRIMARY KEY (number), 
 CONSTRAINT fk_births_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE box_apps (
 device VARCHAR(16) NOT NULL, 
 requested BOOLEAN NOT NULL, 
 app TEXT NOT NULL, 
 CONSTRAINT pk_box_apps PRIMARY KEY (device, requested, app), 
 CONSTRAINT fk_box_apps_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE box_labels (
 device VARCHAR(16) NOT NULL, 
 "key" VARCHAR(63) NOT NULL, 
 value VARCHAR(63) NOT NULL, 
 CONSTRAINT pk_box_labels PRIMARY KEY (device, "key"), 
 CONSTRAINT fk_box_labels_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE INDEX box_labels_by_value ON box_labels ("key", value);
CREATE TABLE "box_summaries" (
 device VARCHAR(16) NOT NULL, 
 changed BIGINT NOT NULL, 
 health VARCHAR(8) NOT NULL, 
 agent TEXT NOT NULL, 
 plugin TEXT NOT NULL, 
 k3s TEXT NOT NULL, 
 driver TEXT NOT NULL, 
 cards BIGINT, 
 shared_cards BIGINT NOT NULL, 
 units BIGINT NOT NULL, 
 free_units BIGINT NOT NULL, 
 sharing BOOLEAN NOT NULL, 
 open_items BIGINT NOT NULL, 
 open_commands BIGINT NOT NULL, 
 waiting BIGINT NOT NULL, 
 problems BIGINT NOT NULL, 
 cluster TEXT NOT NULL, 
 holder BOOLEAN NOT NULL, 
 "left" VARCHAR(16) NOT NULL, 
 partition BIGINT NOT NULL, 
 claim TEXT NOT NULL, 
 CONSTRAINT pk_box_summaries PRIMARY KEY (device)
);
CREATE INDEX box_summaries_by_change ON box_summaries (partition, changed);
CREATE TABLE "boxes" (
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
 partition BIGINT NOT NULL, 
 CONSTRAINT pk_boxes PRIMARY KEY (device), 
 CONSTRAINT uq_boxes_name UNIQUE (name)
);
CREATE TABLE card_use (
 device VARCHAR(16) NOT NULL, 
 quarter_s BIGINT NOT NULL, 
 card VARCHAR(64) NOT NULL, 
 samples BIGINT NOT NULL, 
 core_sum FLOAT NOT NULL, 
 core_max FLOAT NOT NULL, 
 memory_sum_mib FLOAT NOT NULL, 
 memory_max_mib BIGINT NOT NULL, 
 CONSTRAINT pk_card_use PRIMARY KEY (device, quarter_s, card), 
 CONSTRAINT fk_card_use_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
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
 CONSTRAINT pk_certificates PRIMARY KEY (serial)
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
 next_at_s FLOAT, sent_at_s FLOAT, 
 CONSTRAINT pk_commands PRIMARY KEY (number), 
 CONSTRAINT uq_commands_id UNIQUE (id), 
 CONSTRAINT fk_commands_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE INDEX commands_of_box ON commands (device, ended, number);
CREATE TABLE controller_certificates (
 name VARCHAR(64) NOT NULL, 
 ends_at_s FLOAT NOT NULL, 
 request TEXT NOT NULL, 
 answer TEXT NOT NULL, 
 CONSTRAINT pk_controller_certificates PRIMARY KEY (name)
);
CREATE TABLE controllers (
 name VARCHAR(64) NOT NULL, 
 instance VARCHAR(32) NOT NULL, 
 beat BIGINT NOT NULL, 
 place VARCHAR(64) NOT NULL, 
 host TEXT NOT NULL, 
 seen_at_s FLOAT NOT NULL, 
 CONSTRAINT pk_controllers PRIMARY KEY (name)
);
CREATE TABLE events (
 number INTEGER NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 kind TEXT NOT NULL, 
 level VARCHAR(16) NOT NULL, 
 text TEXT NOT NULL, 
 about TEXT NOT NULL, 
 box_at BIGINT NOT NULL, 
 at_s FLOAT NOT NULL, "transaction" JSON, 
 CONSTRAINT pk_events PRIMARY KEY (number), 
 CONSTRAINT fk_events_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE evidence (
 device VARCHAR(16) NOT NULL, 
 uid VARCHAR(64) NOT NULL, 
 container VARCHAR(253) NOT NULL, 
 namespace VARCHAR(253) NOT NULL, 
 pod VARCHAR(253) NOT NULL, 
 verdict VARCHAR(16) NOT NULL, 
 held JSON NOT NULL, 
 seen JSON NOT NULL, 
 lines TEXT NOT NULL, 
 text TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 CONSTRAINT pk_evidence PRIMARY KEY (device, uid, container), 
 CONSTRAINT fk_evidence_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE history (
 number INTEGER NOT NULL, 
 command VARCHAR(40) NOT NULL, 
 at_s FLOAT NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 code TEXT NOT NULL, 
 text TEXT NOT NULL, 
 CONSTRAINT pk_history PRIMARY KEY (number)
);
CREATE TABLE idempotency_keys (
 "by" TEXT NOT NULL, 
 "key" VARCHAR(64) NOT NULL, 
 request VARCHAR(64) NOT NULL, 
 claim VARCHAR(32) NOT NULL, 
 at_s FLOAT NOT NULL, 
 done BOOLEAN NOT NULL, 
 answer TEXT, 
 CONSTRAINT pk_idempotency_keys PRIMARY KEY ("by", "key")
);
CREATE INDEX ix_alarms_device ON alarms (device);
CREATE INDEX ix_alert_deliveries_next_at_s ON alert_deliveries (next_at_s);
CREATE INDEX ix_alerts_device ON alerts (device);
CREATE INDEX ix_alerts_resolved_at_s ON alerts (resolved_at_s);
CREATE INDEX ix_audit_by ON audit ("by");
CREATE INDEX ix_audit_device ON audit (device);
CREATE INDEX ix_audit_what ON audit (what);
CREATE INDEX ix_births_device ON births (device);
CREATE INDEX ix_box_apps_app ON box_apps (app);
CREATE INDEX ix_box_summaries_cluster ON box_summaries (cluster);
CREATE INDEX ix_boxes_instance ON boxes (instance);
CREATE INDEX ix_boxes_look_at_s ON boxes (look_at_s);
CREATE INDEX ix_boxes_partition ON boxes (partition);
CREATE INDEX ix_boxes_touched ON boxes (touched);
CREATE INDEX ix_card_use_quarter_s ON card_use (quarter_s);
CREATE INDEX ix_certificates_csr_sha256 ON certificates (csr_sha256);
CREATE INDEX ix_certificates_device ON certificates (device);
CREATE INDEX ix_certificates_not_after_s ON certificates (not_after_s);
CREATE INDEX ix_certificates_revoked_at_s ON certificates (revoked_at_s);
CREATE INDEX ix_commands_ended_at_s ON commands (ended_at_s);
CREATE INDEX ix_commands_next_at_s ON commands (next_at_s);
CREATE INDEX ix_events_device ON events (device);
CREATE INDEX ix_evidence_at_s ON evidence (at_s);
CREATE INDEX ix_history_command ON history (command);
CREATE INDEX ix_idempotency_keys_at_s ON idempotency_keys (at_s);
CREATE INDEX ix_one_time_links_account ON one_time_links (account);
CREATE INDEX ix_operation_boxes_command ON operation_boxes (command);
CREATE INDEX ix_operations_state ON operations (state);
CREATE INDEX ix_rollouts_ended_at_s ON rollouts (ended_at_s);
CREATE INDEX ix_rollouts_state ON rollouts (state);
CREATE INDEX ix_sign_in_failures_last_at_s ON sign_in_failures (last_at_s);
CREATE INDEX ix_web_sessions_account ON web_sessions (account);
CREATE TABLE key_sets (
 version BIGINT NOT NULL, 
 text TEXT NOT NULL, 
 sig VARCHAR(86) NOT NULL, 
 CONSTRAINT pk_key_sets PRIMARY KEY (version)
);
CREATE TABLE known_addresses (
 account VARCHAR(64) NOT NULL, 
 address VARCHAR(64) NOT NULL, 
 at_s FLOAT NOT NULL, 
 CONSTRAINT pk_known_addresses PRIMARY KEY (account, address), 
 CONSTRAINT fk_known_addresses_account_accounts FOREIGN KEY(account) REFERENCES accounts (name)
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
 CONSTRAINT pk_latest PRIMARY KEY (device, kind), 
 CONSTRAINT fk_latest_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE meta (
 "key" VARCHAR(64) NOT NULL, 
 value BIGINT NOT NULL, 
 CONSTRAINT pk_meta PRIMARY KEY ("key")
);
CREATE TABLE one_time_links (
 digest VARCHAR(64) NOT NULL, 
 kind VARCHAR(16) NOT NULL, 
 account VARCHAR(64) NOT NULL, 
 "by" TEXT NOT NULL, 
 created_at_s FLOAT NOT NULL, 
 expires_at_s FLOAT NOT NULL, 
 CONSTRAINT pk_one_time_links PRIMARY KEY (digest)
);
CREATE TABLE operation_boxes (
 operation VARCHAR(26) NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 outcome VARCHAR(16) NOT NULL, 
 text TEXT NOT NULL, 
 remedy TEXT NOT NULL, 
 rev BIGINT, 
 command VARCHAR(40), 
 items JSON NOT NULL, 
 force BOOLEAN NOT NULL, args JSON, seen_rev BIGINT, text_phrase JSON, remedy_phrase JSON, "before" JSON, 
 CONSTRAINT pk_operation_boxes PRIMARY KEY (operation, device), 
 CONSTRAINT fk_operation_boxes_operation_operations FOREIGN KEY(operation) REFERENCES operations (id)
);
CREATE INDEX operation_boxes_by_outcome ON operation_boxes (operation, outcome, device);
CREATE INDEX operation_boxes_of_box ON operation_boxes (device, outcome);
CREATE TABLE operations (
 id VARCHAR(26) NOT NULL, 
 kind VARCHAR(16) NOT NULL, 
 args JSON NOT NULL, 
 "by" TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 selector TEXT NOT NULL, 
 "key" VARCHAR(64), 
 boxes BIGINT NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 ended_at_s FLOAT, filter JSON, per_box BOOLEAN, request VARCHAR(16), seen_change BIGINT, undoes VARCHAR(26), 
 CONSTRAINT pk_operations PRIMARY KEY (id)
);
CREATE UNIQUE INDEX operations_by_key ON operations ("by", "key");
CREATE TABLE orphans (
 device VARCHAR(16) NOT NULL, 
 id VARCHAR(40) NOT NULL, 
 op VARCHAR(80) NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 code TEXT NOT NULL, 
 text TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 CONSTRAINT pk_orphans PRIMARY KEY (device, id), 
 CONSTRAINT fk_orphans_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE partitions (
 number BIGINT NOT NULL, 
 holder VARCHAR(64) NOT NULL, 
 fence BIGINT NOT NULL, 
 CONSTRAINT pk_partitions PRIMARY KEY (number)
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
 CONSTRAINT pk_requests PRIMARY KEY (id)
);
CREATE INDEX requests_of_state ON requests (state, at_s, id);
CREATE INDEX requests_of_token ON requests (token, at_s, id);
CREATE TABLE rollout_boxes (
 rollout INTEGER NOT NULL, 
 device VARCHAR(16) NOT NULL, 
 name VARCHAR(253) NOT NULL, 
 position BIGINT NOT NULL, 
 wave BIGINT NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 attempts BIGINT NOT NULL, 
 message TEXT NOT NULL, 
 next_try_at_s FLOAT, 
 since_s FLOAT NOT NULL, 
 changed BOOLEAN NOT NULL, 
 rev BIGINT NOT NULL, 
 command VARCHAR(40), 
 "before" JSON, 
 wrote JSON, 
 others JSON NOT NULL, 
 checked_s FLOAT NOT NULL, message_phrase JSON, 
 CONSTRAINT pk_rollout_boxes PRIMARY KEY (rollout, device), 
 CONSTRAINT fk_rollout_boxes_rollout_rollouts FOREIGN KEY(rollout) REFERENCES rollouts (number)
);
CREATE INDEX rollout_boxes_in_order ON rollout_boxes (rollout, position);
CREATE INDEX rollout_boxes_of_device ON rollout_boxes (device);
CREATE INDEX rollout_boxes_of_state ON rollout_boxes (rollout, state, wave, position);
CREATE TABLE rollouts (
 number INTEGER NOT NULL, 
 kind VARCHAR(16) NOT NULL, 
 subject VARCHAR(1024) NOT NULL, 
 change JSON NOT NULL, 
 strategy JSON NOT NULL, 
 "by" TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 waves BIGINT NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 wave BIGINT NOT NULL, 
 waived BIGINT NOT NULL, 
 held BOOLEAN NOT NULL, 
 returns BOOLEAN NOT NULL, 
 reason TEXT NOT NULL, 
 ended_at_s FLOAT, reason_phrase JSON, seen_change BIGINT, 
 CONSTRAINT pk_rollouts PRIMARY KEY (number)
);
CREATE TABLE server_times (
 partition BIGINT NOT NULL, 
 at_s BIGINT NOT NULL, 
 CONSTRAINT pk_server_times PRIMARY KEY (partition)
);
CREATE TABLE settlements (
 device VARCHAR(16) NOT NULL, 
 item VARCHAR(400) NOT NULL, 
 rev BIGINT NOT NULL, 
 retry BIGINT NOT NULL, 
 enrolment BIGINT NOT NULL, 
 state VARCHAR(16) NOT NULL, 
 code VARCHAR(40) NOT NULL, 
 text TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 CONSTRAINT pk_settlements PRIMARY KEY (device, item, rev, retry), 
 CONSTRAINT fk_settlements_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
);
CREATE TABLE sign_in_failures (
 "key" VARCHAR(160) NOT NULL, 
 count BIGINT NOT NULL, 
 last_at_s FLOAT NOT NULL, 
 locked_until_s FLOAT NOT NULL, 
 CONSTRAINT pk_sign_in_failures PRIMARY KEY ("key")
);
CREATE TABLE specs (
 device VARCHAR(16) NOT NULL, 
 rev BIGINT NOT NULL, 
 spec JSON NOT NULL, 
 at_s FLOAT NOT NULL, 
 "by" TEXT NOT NULL, changed BIGINT, 
 CONSTRAINT pk_specs PRIMARY KEY (device, rev), 
 CONSTRAINT fk_specs_device_boxes FOREIGN KEY(device) REFERENCES boxes (device)
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
 CONSTRAINT pk_tokens PRIMARY KEY (digest)
);
CREATE INDEX tokens_by_end ON tokens (expires_at_s);
CREATE INDEX tokens_in_order ON tokens (at_s, digest);
CREATE TABLE web_sessions (
 digest VARCHAR(64) NOT NULL, 
 account VARCHAR(64) NOT NULL, 
 created_at_s FLOAT NOT NULL, 
 used_at_s FLOAT NOT NULL, 
 ends_at_s FLOAT NOT NULL, 
 address VARCHAR(64) NOT NULL, 
 agent VARCHAR(200) NOT NULL, 
 CONSTRAINT pk_web_sessions PRIMARY KEY (digest), 
 CONSTRAINT fk_web_sessions_account_accounts FOREIGN KEY(account) REFERENCES accounts (name)
);
CREATE TABLE webhooks (
 id VARCHAR(16) NOT NULL, 
 url VARCHAR(1000) NOT NULL, 
 secret VARCHAR(200) NOT NULL, 
 disabled BOOLEAN NOT NULL, 
 "by" TEXT NOT NULL, 
 at_s FLOAT NOT NULL, 
 CONSTRAINT pk_webhooks PRIMARY KEY (id), 
 CONSTRAINT uq_webhooks_url UNIQUE (url)
);
