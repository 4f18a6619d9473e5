// Loaded into the suite before it runs: it has no way to send a token, and our server takes no request without one.
// Every request it makes gets the header, whichever of its HTTP clients makes it; nothing else is changed.
import diagnostics from "node:diagnostics_channel";

const header = `Bearer ${process.env.PLUGWARD_CONFORMANCE_TOKEN}`;
diagnostics.channel("undici:request:create").subscribe(({ request }) => request.addHeader("authorization", header));
diagnostics.channel("http.client.request.created").subscribe(({ request }) => {
  if (!request.headersSent) request.setHeader("authorization", header);
});
