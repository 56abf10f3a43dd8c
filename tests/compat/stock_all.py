"""Every stock client that the tests speak through."""

from stock import StockClient
from stock_java import JavaClient
from stock_python import AiokafkaClient, ConfluentClient, KafkaPythonClient

CLIENTS: tuple[type[StockClient], ...] = (ConfluentClient, KafkaPythonClient, AiokafkaClient, JavaClient)
