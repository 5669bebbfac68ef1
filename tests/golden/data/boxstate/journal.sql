PRAGMA application_id = 1162301525;
PRAGMA user_version = 1;
CREATE TABLE commands (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL, live INTEGER NOT NULL, value TEXT NOT NULL, args TEXT NOT NULL
    );
INSERT INTO "commands" VALUES('01j9zq4v7m2c8x5n',5,1,'{"op":"k3s.restart","seq":5,"until_s":9.0,"left_s":8.0,"boot":"boot","state":"SUCCEEDED","token":"a token","attempts":1,"code":"TIMED_OUT","text":"words"}','{"a":[1]}');
INSERT INTO "commands" VALUES('command-1',6,1,'{"op":"k3s.restart","seq":6,"until_s":9.0,"left_s":8.0,"boot":"boot","state":"RUNNING","token":"a token","attempts":1,"code":"TIMED_OUT","text":"words"}','{"a":[1]}');
CREATE TABLE history (
        n INTEGER PRIMARY KEY, at_s INTEGER NOT NULL, kind TEXT NOT NULL, about TEXT NOT NULL, state TEXT NOT NULL,
        text TEXT NOT NULL, by TEXT NOT NULL
    );
INSERT INTO "history" VALUES(1,1790000000,'command','about','STATE','text','anna');
INSERT INTO "history" VALUES(2,1790000000,'item','about','STATE','text','anna');
INSERT INTO "history" VALUES(3,1790000000,'desired','about','STATE','text','anna');
INSERT INTO "history" VALUES(4,1790000000,'keys','about','STATE','text','anna');
INSERT INTO "history" VALUES(5,1790000000,'link','about','STATE','text','anna');
INSERT INTO "history" VALUES(6,1790000000,'journal','about','STATE','text','anna');
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "notes" VALUES('sharing','{"tx":"1"}');
CREATE TABLE one (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "one" VALUES('dropped','{"events":3,"metrics":0}');
INSERT INTO "one" VALUES('gate','{"enrolment":3,"epoch":{"count":1,"nonce":"abababababababab"},"born_s":4.5,"floor":7,"seen":"5","forgotten":2}');
INSERT INTO "one" VALUES('heard','["boot",3.5]');
INSERT INTO "one" VALUES('oldest_reader','1');
INSERT INTO "one" VALUES('refused','{"Forged":2}');
INSERT INTO "one" VALUES('ring','{"root":"root","version":2,"digest":"abababababababababababababababababababababababababababababababab","keys":[["kid","public"]]}');
INSERT INTO "one" VALUES('seen','[12,"f1b0c8eb9d470c72",0]');
INSERT INTO "one" VALUES('server_time','17');
INSERT INTO "one" VALUES('settling','{"name":"policy","key":{"rev":5,"digest":"c099b1a533f3c467","retry":0},"type":"PolicyItem","item":{"rev":5,"policy":"best-fit"}}');
INSERT INTO "one" VALUES('spec','{"sharing":{"rev":3,"retry":1,"critical":["installed"],"installed":true},"isolation":{"rev":4,"mode":"limiter"},"policy":{"rev":5,"policy":"best-fit"},"exclusions":{"rev":6,"cards":["0","0:1","GPU-7d2f0c1e-3a44-4b6e-9d55-0a1b2c3d4e5f"]},"unit_size":{"rev":7,"mib":512},"app_limits":[{"rev":8,"retry":2,"critical":["force"],"cluster":"3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11","namespace":"default","app":"asr","container":"main","memory_units":10,"core":20,"force":true,"interrupt":true,"on_drift":"enforce"},{"rev":9,"cluster":"3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11","namespace":"default","app":"ocr","container":"main","memory_units":0,"core":0}],"critical":["sharing"]}');
INSERT INTO "one" VALUES('told','');
INSERT INTO "one" VALUES('transactions','[]');
CREATE TABLE outbox (
        place INTEGER PRIMARY KEY, part TEXT NOT NULL, key TEXT NOT NULL, alarm INTEGER NOT NULL, body BLOB NOT NULL,
        UNIQUE (part, key)
    );
INSERT INTO "outbox" VALUES(1,'result','01j9zq4v7m2c8x5n',0,X'726573756C74');
INSERT INTO "outbox" VALUES(2,'event','3/42/9f2c4d1a7b3e5f60/7',1,X'6576656E74');
INSERT INTO "outbox" VALUES(3,'metrics','3/42/9f2c4d1a7b3e5f60/8',0,X'6D657472');
CREATE TABLE tries (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "tries" VALUES('sharing','{"key":{"rev":3,"digest":"de383c68e35997fe","retry":1},"tries":1,"state":"Applied","code":"","text":"it stands","numbers":null,"restored":false,"conditions":[]}');
INSERT INTO "tries" VALUES('app_limits/default/asr/main','{"key":{"rev":8,"digest":"044f241a1af4c958","retry":2},"tries":1,"state":"Rejected","code":"NO_ROOM","text":"none","numbers":{"need_units":10,"need_core":1,"replicas":2,"verdict":"never_fits","cards":[{"node":"box-1","card":"0","free_units":9,"free_core":40,"held_by_app_units":4}]},"restored":false,"conditions":[{"type":"Drifted","manager":"baetyl","text":"twice"}]}');
INSERT INTO "tries" VALUES('policy','{"key":{"rev":5,"digest":"c099b1a533f3c467","retry":0},"tries":1,"state":"Open","code":"","text":"","numbers":null,"restored":false,"conditions":[]}');
CREATE INDEX commands_by_seq ON commands (live, seq);
