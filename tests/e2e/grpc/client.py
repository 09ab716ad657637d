"""Calls one method again and again and prints who answered: client.py TARGET."""

import sys
import time

import grpc
import grpc.experimental

credentials = grpc.xds_channel_credentials(grpc.experimental.insecure_channel_credentials())
call = grpc.secure_channel(sys.argv[1], credentials).unary_unary("/strait.test.Echo/Who")
while True:
    try:
        print("answer", call(b"", timeout=5).decode(), flush=True)
    except grpc.RpcError as error:
        print("failure", error.code().name, error.details(), flush=True)
    time.sleep(0.02)
