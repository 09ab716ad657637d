"""Answers every call with its name: server.py NAME ADDRESS."""

import concurrent.futures
import sys

import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        answer = sys.argv[1].encode()
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4), handlers=[Echo()], xds=True)
# Without mutual TLS the zone says so, and this is what is left.
server.add_secure_port(sys.argv[2], grpc.xds_server_credentials(grpc.insecure_server_credentials()))
server.start()
server.wait_for_termination()
