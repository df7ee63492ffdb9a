// Loaded into Node programs by `vestige run`: Node's own fetch ignores HTTPS_PROXY.
// TLS connections go through the recording proxy, which tunnels all hosts but those of models.
'use strict';
const proxy = process.env.VESTIGE_PROXY_URL;
if (proxy) {
  try {
    const net = require('node:net');
    const tls = require('node:tls');
    const { Duplex } = require('node:stream');
    const target = new URL(proxy);
    const pair = `${decodeURIComponent(target.username)}:${decodeURIComponent(target.password)}`;
    const authorization = `Basic ${Buffer.from(pair).toString('base64')}`;
    const connect = tls.connect;

    // A stream through the proxy, which is usable before the proxy has answered.
    const tunnel = (host, port) => {
      const name = net.isIPv6(host) ? `[${host}]` : host;
      const raw = net.connect(Number(target.port), target.hostname);
      let waiting = [];
      let head = Buffer.alloc(0);
      const stream = new Duplex({
        read() { if (!waiting) raw.resume(); },
        write(chunk, encoding, done) {
          if (waiting) waiting.push([chunk, done]);
          else raw.write(chunk, done);
        },
        final(done) { raw.end(done); },
        destroy(error, done) { raw.destroy(); done(error); },
      });
      for (const name of ['setKeepAlive', 'setNoDelay', 'ref', 'unref']) {
        stream[name] = (...values) => { raw[name](...values); return stream; };
      }
      raw.write(`CONNECT ${name}:${port} HTTP/1.1\r\nHost: ${name}:${port}\r\n`
        + `Proxy-Authorization: ${authorization}\r\n\r\n`);
      raw.on('data', (chunk) => {
        if (!waiting) {
          if (!stream.push(chunk)) raw.pause();
          return;
        }
        head = Buffer.concat([head, chunk]);
        const end = head.indexOf('\r\n\r\n');
        if (end < 0) return;
        const line = head.toString('latin1', 0, head.indexOf('\r\n'));
        if (!/^HTTP\/1\.[01] 200/.test(line)) {
          const body = head.toString('utf8', end + 4).trim();
          stream.destroy(new Error(body || `vestige proxy: ${line}`));
          return;
        }
        const written = waiting;
        waiting = null;
        for (const [data, done] of written) raw.write(data, done);
        if (head.length > end + 4) stream.push(head.subarray(end + 4));
      });
      raw.on('end', () => stream.push(null));
      raw.on('error', (error) => stream.destroy(error));
      raw.on('close', () => stream.destroy());
      return stream;
    };

    tls.connect = function (...args) {
      const options = args[0];
      if (options && typeof options === 'object' && !options.socket && !options.path) {
        const host = options.host || options.servername || 'localhost';
        const servername = options.servername || (net.isIP(host) ? '' : host);
        const stream = tunnel(host, options.port || 443);
        args[0] = { ...options, servername, socket: stream };
        const socket = connect.apply(this, args);
        // An idle connection must not keep the program alive.
        socket.ref = () => { stream.ref(); return socket; };
        socket.unref = () => { stream.unref(); return socket; };
        return socket;
      }
      return connect.apply(this, args);
    };
  } catch {
    // The program runs unrecorded.
  }
}
