"""Holds TCP sockets for as long as somebody looks at them.

    holder.py listen ADDRESS PORT...     accepts on each, and keeps what it accepts
    holder.py connect ADDRESS PORT...    connects to each, says a line and waits for it to come back

It says a line of JSON when it listens or is connected, and ends with its standard input.
"""
import json
import socket
import sys
import threading

how, address, ports = sys.argv[1], sys.argv[2], [int(word) for word in sys.argv[3:]]
kept = []


def serve(listener):
    while True:
        connection, _ = listener.accept()
        kept.append(connection)
        connection.sendall(connection.recv(100))


def listen(port):
    listener = socket.create_server((address, port))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return listener


def connect(port):
    connection = socket.create_connection((address, port))
    connection.sendall(b"hello\n")
    connection.recv(100)
    return connection


kept += [{"listen": listen, "connect": connect}[how](port) for port in ports]
print(json.dumps("ready"), flush=True)
sys.stdin.read()
