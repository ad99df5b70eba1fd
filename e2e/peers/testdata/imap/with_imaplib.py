"""Walks through a mailbox with Python's own imaplib: HOST PORT USER PASSWORD. It prints each operation that has worked."""
import email
import imaplib
import select
import sys

host, port, user, password = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
letter = b"From: ann@example.test\r\nSubject: draft\r\n\r\nunfinished\r\n"


def ok(answer):
    status, data = answer
    assert status == "OK", answer
    return data


def did(operation):
    print(operation, flush=True)


m = imaplib.IMAP4(host, port)
ok(m.login(user, password))
did("log in")
assert any(b'"INBOX"' in line or b"INBOX" in line for line in ok(m.list()))
assert ok(m.namespace())[0].startswith(b'(("" "/"))')
did("list")
assert ok(m.select("INBOX")) == [b"3"]
assert b"MESSAGES 3" in ok(m.status("INBOX", "(MESSAGES UIDNEXT UNSEEN)"))[0]
did("select")
ids = ok(m.search(None, "OR", "SUBJECT", "one", "SUBJECT", "two"))[0]
assert ids == b"1 2", ids
assert ok(m.uid("SEARCH", "CHARSET", "UTF-8", "TEXT", '"Hello three"'))[0] == b"3"
did("search")
data = ok(m.fetch("1:*", "(UID FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT FROM)])"))
assert len([d for d in data if isinstance(d, tuple)]) == 3
assert email.message_from_bytes(ok(m.fetch("1", "(RFC822)"))[0][1])["Subject"] == "one"
did("fetch")
assert ok(m.fetch("1", "(BODY.PEEK[TEXT]<6.3>)"))[0][1] == b"one"
did("parts")
assert b"\\Flagged" in ok(m.store("2", "+FLAGS", r"(\Flagged Later)"))[0]
did("flags")
ok(m.append("Drafts", r"(\Draft)", imaplib.Time2Internaldate(0), letter))
did("append")
ok(m.create("Work/Plans"))
ok(m.rename("Work/Plans", "Work/Done"))
ok(m.create("Gone"))
ok(m.delete("Gone"))
did("folders")
ok(m.subscribe("Work/Done"))
assert any(b"Work/Done" in line for line in ok(m.lsub()))
ok(m.unsubscribe("Work/Done"))
did("subscribe")
ok(m.copy("1", "Archive"))
did("copy")
ok(m.uid("MOVE", "2", "Work/Done"))
did("move")
ok(m.store("2", "+FLAGS.SILENT", r"(\Deleted)"))
assert ok(m.expunge())[-1] == b"2"
did("expunge")
ok(m.getquotaroot("INBOX"))
did("quota")
imaplib.Commands["ID"] = ("NONAUTH", "AUTH", "SELECTED")
ok(m._simple_command("ID", '("name" "imaplib")'))
did("id")
ok(m.close())
m.logout()
