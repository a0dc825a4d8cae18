import pytest

from wmrl_cli.agent.parsing import extract_script

F = "```"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        (f"Here:\n{F}python\nx = 1\n{F}\nDone.", "x = 1\n"),
        (f"{F}py\nx = 1\n{F}", "x = 1\n"),
        (f"{F}\nx = 1\n{F}", "x = 1\n"),
        (f"{F}\nnot this\n{F}\n{F}python\nx = 1\n{F}", "x = 1\n"),  # python goes before plain
        (f"{F}python\nfirst\n{F}\n{F}python\nsecond\n{F}", "first\n"),
        (f"{F}bash\npip install x\n{F}\n{F}\nx = 1\n{F}", "x = 1\n"),  # another language is no script
        (f"{F}python\nx = '{F}'\ny = 2\n{F}", f"x = '{F}'\ny = 2\n"),  # a fence inside a line closes nothing
        (
            f"{F}{F[0]}python\nx = '''\n{F}\n'''\n{F}{F[0]}",
            f"x = '''\n{F}\n'''\n",
        ),  # a longer fence holds a shorter one
        (f"<think>\n{F}python\nidea\n{F}\n</think>\n{F}python\nx = 1\n{F}", "x = 1\n"),
        (f"Here:\r\n{F}python\r\nx = 1\r\n{F}\r\n", "x = 1\n"),
    ],
)
def test_the_script_of_a_reply(text: str, script: str):
    assert extract_script(text, "stop") == script


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I would use a forest.",
        f"{F}python\nx = 1",
        f"{F}\nx = 1",
        f"{F}bash\nls\n{F}",
        f"<think>\n{F}python\nx = 1\n{F}",
    ],
)
def test_a_reply_without_a_closed_block_has_no_script(text: str):
    assert extract_script(text, "stop") is None


def test_a_block_that_the_token_limit_cut_is_no_script():
    assert extract_script(f"{F}python\nx = 1\nprint(x", "length") is None
    assert extract_script(f"{F}python\nx = 1\n{F}", "length") is None  # the fence may have been going on
    assert extract_script(f"{F}python\nx = 1\n{F}\nThis tra", "length") == "x = 1\n"
