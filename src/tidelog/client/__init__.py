"""Is: a small Kafka client over wire: metadata, produce, fetch, admin, with retries and clear errors.

Takes: bootstrap addresses, requests. Gives: responses, records, errors that say what to do.
Never: imports a room of the broker.
"""

from tidelog.client.client import Client as Client
from tidelog.client.errors import ClientError as ClientError
from tidelog.client.producer import Message as Message
