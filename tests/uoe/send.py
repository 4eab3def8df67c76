#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends numbered datagrams, a little slower than a receiver in Python takes them.

    send.py PORT COUNT SIZE [answered] [patient] [forks] [ties] [from=ADDRESS] [burst=COUNT] [ADDRESS]

Says how many were sent and, with `answered`, how many came back, as a line of JSON. `patient` waits some seconds before
it says that it is over; in the middle `forks` runs another program, and `ties` binds the socket to an interface. `from`
binds it to an address, `burst` is how many leave between two rests of 2 ms (100).
"""
import json
import os
import socket
import sys
import time

port, count, size = (int(word) for word in sys.argv[1:4])
is_answered = "answered" in sys.argv[4:]
burst = next((int(word.removeprefix("burst=")) for word in sys.argv[4:] if word.startswith("burst=")), 100)
own = [word.removeprefix("from=") for word in sys.argv[4:] if word.startswith("from=")]
addresses = [word for word in sys.argv[4:] if word not in ("answered", "patient", "forks", "ties") and "=" not in word]
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if own:
    to.bind((own[0], 0))
to.connect((addresses[0] if addresses else "127.0.0.1", port))
to.settimeout(5)
sent = answered = 0
for number in range(count):
    try:
        to.send(number.to_bytes(4, "big") + bytes([number & 255]) * (size - 4))
        sent += 1
    except ConnectionRefusedError:
        # What went before met nobody.
        pass
    if "forks" in sys.argv[4:] and number == count // 2:
        os.system("true")
    if "ties" in sys.argv[4:] and number == count // 2:
        to.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
    if is_answered and number % 64 == 63:
        for _ in range(64):
            answered += len(to.recv(70000)) == size
    elif number % burst == burst - 1:
        time.sleep(0.002)
time.sleep(6 if "patient" in sys.argv[4:] else 0.3)
to.send(b"end")
print(json.dumps({"sent": sent, "answered": answered}), flush=True)
