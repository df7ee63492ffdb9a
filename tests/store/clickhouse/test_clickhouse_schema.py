"""The address of a store, its tables, and the files of a deployment. No server is needed."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner

from support.programs import Golden
from vestige.cli.main import cli
from vestige.errors import SettingError, UsageError
from vestige.home import Home
from vestige.settings import find_store
from vestige.store.clickhouse import schema
from vestige.store.clickhouse.address import parse_address
from vestige.store.open import describe_schema, open_store, render_server_schema

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_an_address_has_a_host_a_port_and_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VESTIGE_CLICKHOUSE_PASSWORD", "from-env")
    plain = parse_address("clickhouse://db/team")
    secure = parse_address("clickhouses://ann:p%40ss@db.example.com:9999/team")

    assert (plain.port, plain.database, plain.user, plain.password) == (
        8123,
        "team",
        "default",
        "from-env",
    )
    assert (secure.port, secure.user, secure.password, secure.secure) == (9999, "ann", "p@ss", True)
    assert str(secure) == "clickhouses://db.example.com:9999/team"
    assert "p@ss" not in repr(secure)


@pytest.mark.parametrize(
    "text",
    [
        "clickhouse:///db",
        "clickhouse://host:port/db",
        "clickhouse://host/a;b",
        "clickhouse://ann:secret@host/a-b",
        "clickhouse://host/db?x=1",
        "clickhouse://host/`db`",
        "http://host/db",
    ],
)
def test_an_invalid_address_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_address(text)
    assert "secret" not in str(error.value)


def test_the_setting_of_a_home_chooses_its_store(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.make()
    assert find_store(home) == home.store
    home.config.write_text('store = "clickhouse://db:8123/team"\n')
    assert find_store(home) == "clickhouse://db:8123/team"
    monkeypatch.setenv("VESTIGE_STORE", "clickhouse://other/team")
    assert find_store(home) == "clickhouse://other/team"
    monkeypatch.setenv("VESTIGE_STORE", "mysql://other/team")
    with pytest.raises(SettingError, match="clickhouse://db:8123/vestige"):
        find_store(home)


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_an_error_with_its_address() -> None:
    with pytest.raises(Exception, match=r"clickhouse://127\.0\.0\.1:1/team: "):
        open_store("clickhouse://127.0.0.1:1/team")


def test_the_tables_of_a_cluster(golden: Golden) -> None:
    """This text was not run on a cluster; a change of it must be deliberate."""
    text = render_server_schema(
        "clickhouse://db/team",
        cluster="main",
        storage_policy="s3",
        sharding_key="cityHash64(tenant)",
    )

    golden("clickhouse_cluster.sql", text.replace(", ", ",\n  ") + "\n")


def test_hostile_cluster_options_are_refused() -> None:
    for options in ({"cluster": "a'b"}, {"storage_policy": "x; DROP"}, {"sharding_key": "a';--"}):
        with pytest.raises(UsageError):
            render_server_schema("clickhouse://db/team", **options)


def test_row_policies_bind_a_user_to_one_tenant(golden: Golden) -> None:
    """The engine of the tests cannot create users, so this text is compared and parsed only."""
    arguments = ["store", "grant", "acme", "grafana", "--store", "clickhouse://v@db/t", "--print"]
    result = CliRunner().invoke(cli, arguments)

    assert result.exit_code == 0
    golden("clickhouse_grants.sql", result.output)
    for table in schema.USER_TABLES:
        policy = f"ON t.{table} FOR SELECT USING tenant = 'acme' TO `grafana`"
        assert policy in result.output
        assert f"GRANT SELECT ON t.{table} TO `grafana`" in result.output


@pytest.mark.parametrize(
    ("tenant", "user"),
    [("a' OR 1", "bob"), ("acme", "bob` , `ann"), ("acme", ""), ("acme", "v"), ("", "bob")],
)
def test_hostile_names_get_no_row_policy(tenant: str, user: str) -> None:
    arguments = ["store", "grant", tenant, user, "--store", "clickhouse://v@db/t", "--print"]

    assert CliRunner().invoke(cli, arguments).exit_code == 2


def test_the_command_prints_the_tables() -> None:
    result = CliRunner().invoke(cli, ["store", "init", "--store", "clickhouse://db/t", "--print"])

    assert result.exit_code == 0
    assert result.output.count("CREATE TABLE IF NOT EXISTS t.") == len([*schema.iter_tables()]) + 1
    assert "MergeTree" in result.output and "Replicated" not in result.output


def test_every_table_starts_with_its_tenant_and_has_versions() -> None:
    for name, sql in schema.iter_tables():
        columns = schema.column_types(name)
        if name in ("commits", "attempts"):
            continue
        assert list(columns)[-3:] == list(schema.VERSION_COLUMNS), name
        if "tenant" in columns and name != "closes":
            assert re.search(r"ORDER BY \(tenant", sql), name


def test_a_user_sees_the_tables_that_sql_can_read() -> None:
    found = describe_schema("clickhouse://db/team")

    assert [table.name for table in found.tables][:2] == ["runs", "spans"]
    assert "commits" not in [table.name for table in found.tables]


# --- deployment -----------------------------------------------------------------------------------


def test_the_compose_file_starts_two_servers_behind_a_balancer() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]

    assert {"clickhouse", "s3", "server-1", "server-2", "loader", "balancer"} <= set(services)
    assert services["server-1"] == services["server-2"]
    assert services["loader"]["environment"] == services["server-1"]["environment"]
    place = services["loader"]["environment"]["VESTIGE_SEGMENTS"]
    assert place.removeprefix("s3://").partition("/")[0] in services["bucket"]["command"][0]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
    address = services["server-1"]["environment"]["VESTIGE_STORE"]
    assert parse_address(address).host == "clickhouse"
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            is_file = source.startswith("./")
            assert (DEPLOY / source).is_file() if is_file else source in compose["volumes"]
    nginx = (DEPLOY / "nginx.conf").read_text()
    assert "server server-1:8642;" in nginx and "server server-2:8642;" in nginx


def test_the_options_of_deployed_commands_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    manifests = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "vestige.yaml").read_text()))
    specs = [
        each["spec"]["template"]["spec"]
        for each in manifests
        if "spec" in each.get("spec", {}).get("template", {})
    ]
    commands = [
        service["command"]
        for service in compose["services"].values()
        if service["image"] == "vestige:latest"
    ]
    commands += [container["command"] for spec in specs for container in spec["containers"]]
    runner = CliRunner()

    assert len(commands) == 7
    for command in commands:
        assert command[0] == "vestige"
        names = [part for part in command if part.startswith("--")]
        words = command[1 : 1 + (2 if command[1] == "store" else 1)]
        text = runner.invoke(cli, [*words, "--help"]).output
        assert all(name in text for name in names), command


def test_the_manifests_refer_to_objects_that_they_define() -> None:
    manifests = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "vestige.yaml").read_text()))
    by_kind = {each["kind"]: each for each in reversed(manifests)}  # the servers come first
    pod = by_kind["Deployment"]["spec"]["template"]
    deployments = [each for each in manifests if each["kind"] == "Deployment"]

    assert [each["metadata"]["name"] for each in deployments] == ["vestige", "vestige-loader"]
    for each in deployments:
        template = each["spec"]["template"]
        assert each["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
        secrets = {
            (found["secretKeyRef"]["name"], found["secretKeyRef"]["key"])
            for variable in template["spec"]["containers"][0]["env"]
            for found in [variable["valueFrom"]]
        }
        assert secrets == {
            ("vestige-clickhouse", "password"),
            ("vestige-s3", "key"),
            ("vestige-s3", "secret"),
        }
    assert is_segments_place(by_kind["ConfigMap"]["data"]["VESTIGE_SEGMENTS"])
    assert set(by_kind) == {"ConfigMap", "Job", "PersistentVolumeClaim", "Deployment", "Service"}
    assert by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert by_kind["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert (
        container["envFrom"][0]["configMapRef"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
    )
    claim = pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    parse_address(by_kind["ConfigMap"]["data"]["VESTIGE_STORE"])


def is_segments_place(text: str) -> bool:
    return re.fullmatch(r"s3://[a-z0-9.-]+/[a-z0-9/_-]+", text) is not None


def test_the_image_contains_what_the_servers_and_the_loader_need() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    extras = re.findall(r"'\.\[([a-z0-9,]+)\]'", text)
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]

    assert extras == ["clickhouse,s3"]
    assert set(extras[0].split(",")) <= set(project["optional-dependencies"])
    words = json.loads(re.findall(r"^CMD (.*)", text, re.MULTILINE)[0])
    assert words[0] == "vestige" and CliRunner().invoke(cli, [words[1], "--help"]).exit_code == 0
    # Commands of the manifests start with the name of the program, which is on the PATH.
    assert "PATH=/opt/vestige/bin:$PATH" in text


def test_the_system_logs_of_the_server_have_an_end() -> None:
    root = ElementTree.parse(DEPLOY / "clickhouse" / "vestige.xml").getroot()
    logs = [each for each in root if each.tag.endswith("_log")]

    assert len(logs) >= 10
    for log in logs:
        assert log.get("remove") == "1" or "DELETE" in (log.findtext("ttl") or ""), log.tag
    assert os.access(DEPLOY / "nginx.conf", os.R_OK)
