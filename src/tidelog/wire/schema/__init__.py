"""One short table per API: fields, types, versions. Read by `tidelog.wire.codec`."""
