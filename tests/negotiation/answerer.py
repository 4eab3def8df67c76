"""Holds the discovery port at an address.

    answerer.py ADDRESS silent|lying

`silent` answers nothing, as a firewall that drops does not. `lying` says yes to every question, though nobody there is
Weft (docs/discovery.md has the datagrams). It says a line of JSON when it is there, and the number of questions for
each line of standard input.
"""
import json
import selectors
import socket
import sys

DISCOVERY_PORT = 22342
held = socket.socket(type=socket.SOCK_DGRAM)
held.bind((sys.argv[1], DISCOVERY_PORT))
selector, questions = selectors.DefaultSelector(), 0
selector.register(held, selectors.EVENT_READ)
selector.register(sys.stdin, selectors.EVENT_READ)
print(json.dumps("holds"), flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj is held:
            question, client = held.recvfrom(600)
            questions += 1
            if sys.argv[2] == "lying":
                # The same beginning, of the kind "yes", and the client's random bits.
                held.sendto(question[:5] + b"\x02" + question[6:24], client)
        elif not sys.stdin.readline():
            sys.exit()
        else:
            print(json.dumps(questions), flush=True)
