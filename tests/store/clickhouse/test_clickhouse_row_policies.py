"""Row policies and backups, as the engine itself enforces and makes them.

The embedded engine cannot run CREATE USER. Its configuration can restrict its only user, so the
rights and conditions of the statements of `vestige store grant` are put there, in a process of
their own over the data of a store with two tenants.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from support.clickhouse import ClickHouseServer
from support.stored_runs import make_run, run_id_of
from vestige.store.clickhouse import schema
from vestige.store.clickhouse.address import parse_address
from vestige.store.clickhouse.client import Client
from vestige.store.clickhouse.row_policies import render_grants
from vestige.store.open import open_store

pytestmark = pytest.mark.full

USERS = """<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default>
<no_password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>
<grants>{grants}</grants><databases>{filters}</databases></default></users></clickhouse>"""
CONFIG = """<clickhouse><user_directories><users_xml><path>{users}</path></users_xml>
</user_directories></clickhouse>"""
ASK = """
import json, sys
from chdb import session
opened = session.Session(sys.argv[1])
answers = []
for sql in json.load(sys.stdin):
    try:
        answers.append(opened.query(sql, "TabSeparated").bytes().decode(errors="replace"))
    except RuntimeError as error:
        answers.append(f"refused: {error}")
print(json.dumps(answers))
"""


def query_as_user(folder: Path, statements: list[str], queries: list[str]) -> list[str]:
    """Return the answers that a user with these grants and row policies gets."""
    grants, filters = "", ""
    for statement in statements:
        if found := re.fullmatch(r"(GRANT SELECT ON \S+) TO `grafana`", statement):
            grants += f"<query>{found[1]}</query>"
        elif "TO `grafana`" in statement:
            found = re.search(r" ON (\w+)\.(\w+) FOR SELECT USING (.*) TO ", statement)
            assert found is not None
            rows = f"<{found[2]}><filter>{escape(found[3])}</filter></{found[2]}>"
            filters += f"<{found[1]}>{rows}</{found[1]}>"
    users = folder.parent / "users.xml"
    users.write_text(USERS.format(grants=grants, filters=filters))
    config = folder.parent / "config.xml"
    config.write_text(CONFIG.format(users=users))
    result = subprocess.run(
        [sys.executable, "-c", ASK, f"{folder}?config-file={config}"],
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[str] = json.loads(result.stdout.splitlines()[-1])
    return answers


def test_a_user_with_row_policies_reads_one_tenant(tmp_path: Path) -> None:
    pytest.importorskip("chdb", reason="needs the engine of ClickHouse: pip install chdb")
    folder = tmp_path / "clickhouse"
    server = ClickHouseServer(folder)
    address = server.make_store()
    with open_store(address) as store:
        store.append(make_run(1, name="secret", request="secret words"), tenant="other")
        store.append(make_run(2, name="own", request="own words"), tenant="acme")
    server.kill()
    parsed = parse_address(address)
    database = parsed.database
    reads = [f"SELECT * FROM {database}.{table}" for table in schema.USER_TABLES]
    sums = [
        f"SELECT count() FROM {database}.runs",
        f"SELECT max(name) FROM {database}.runs PREWHERE 1",
        f"SELECT count() FROM {database}.runs WHERE throwIf(tenant = 'other') = 0",
        f"SELECT count() FROM merge('{database}', 'runs|spans')",
        f"SELECT any(run_id) FROM {database}.runs GROUP BY tenant WITH TOTALS",
    ]
    refused = [
        f"SELECT * FROM {database}.commits",
        f"SELECT * FROM {database}.body_keys",
        f"SELECT * FROM mergeTreeIndex('{database}', 'runs')",
        f"INSERT INTO {database}.runs (tenant) VALUES ('acme')",
        f"ALTER TABLE {database}.runs DELETE WHERE 1",
        f"DROP TABLE {database}.runs",
        "CREATE USER eve",
        "CREATE ROW POLICY p ON {database}.runs USING 1 TO default",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        f"CREATE VIEW {database}.v AS SELECT * FROM {database}.runs",
    ]

    statements = render_grants(parsed, "acme", "grafana")
    answers = query_as_user(folder, statements, [*reads, *sums, *refused])

    for query, answer in zip([*reads, *sums], answers, strict=False):
        assert not answer.startswith("refused"), (query, answer)
        assert "secret" not in answer and "other" not in answer, query
        assert run_id_of(1) not in answer, query
    assert run_id_of(2) in answers[0] and answers[len(reads)] == "1\n"
    for query, answer in zip(refused, answers[len(reads) + len(sums) :], strict=True):
        assert answer.startswith("refused"), query


def test_a_backup_is_restored_as_the_guide_says(tmp_path: Path) -> None:
    pytest.importorskip("chdb", reason="needs the engine of ClickHouse: pip install chdb")
    config = tmp_path / "config.xml"
    config.write_text(
        "<clickhouse><storage_configuration><disks><backups><type>local</type>"
        f"<path>{tmp_path}/backups/</path></backups></disks></storage_configuration>"
        "<backups><allowed_disk>backups</allowed_disk></backups></clickhouse>"
    )
    server = ClickHouseServer(tmp_path / "clickhouse", config)
    try:
        address = server.make_store()
        name = parse_address(address).database
        with open_store(address) as store:
            store.append(make_run(1))
            store.append(make_run(2, answer="the last answer"))
            before = [store.load_run(run_id) for run_id in store.run_ids()]
        client = Client.connect(parse_address(address))
        with client.outside_database():
            client.command(f"BACKUP DATABASE {name} TO Disk('backups', 'one')")
            client.command(f"DROP DATABASE {name} SYNC")
            client.command(f"RESTORE DATABASE {name} FROM Disk('backups', 'one')")
        client.close()
        with open_store(address) as store:
            assert [store.load_run(run_id) for run_id in store.run_ids()] == before
            store.append(make_run(3))
            assert len(store.run_ids()) == 3
    finally:
        server.kill()
