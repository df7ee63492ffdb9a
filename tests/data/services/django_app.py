"""A Django service: answers, a streamed response, and a failure."""

import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse, StreamingHttpResponse
from django.urls import path
from refund_loop import refund


def answer(request, order_id):
    return JsonResponse({"answer": refund(order_id)})


def stream(request, order_id):
    def chunks():
        yield "working\n"
        yield refund(order_id)

    return StreamingHttpResponse(chunks())


def boom(request):
    refund("A8")
    raise ValueError("no such customer")


def health(request):
    return JsonResponse({})


urlpatterns = [
    path("refund/<str:order_id>", answer),
    path("stream/<str:order_id>", stream),
    path("boom", boom),
    path("health", health),
]


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


if __name__ == "__main__":
    settings.configure(SECRET_KEY="k", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], MIDDLEWARE=[])
    django.setup()
    make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application(), Server).serve_forever()
