"""Runs moto's S3 server with a bucket of some objects, prints its URL, and ends with its standard input."""

import sys

import boto3
from moto.server import ThreadedMotoServer


def made(seed, count):
    cycle = bytes((at * 31 + seed) % 251 for at in range(251))
    return (cycle * (count // 251 + 1))[:count]


server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
endpoint = "http://%s:%s" % server.get_host_and_port()
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="user", aws_secret_access_key="secret")
s3.create_bucket(Bucket="models")
for key, seed, count in [
    ("llama/weights.bin", 1, 20_000_000),
    ("llama/nested/", 0, 0),
    ("llama/nested/a b+c.json", 2, 1000),
    ("llama/notes.tmp", 3, 10),
    ("llama-2/other.bin", 4, 10),
]:
    s3.put_object(Bucket="models", Key=key, Body=made(seed, count))
print(endpoint, flush=True)
sys.stdin.read()
server.stop()
