// Unpacks the Chromium of @sparticuz/chromium, with the libraries and fonts that it needs, into the directory TMPDIR.

process.env.VERCEL = "1"; // any system that it knows makes it unpack the libraries, too
const { default: chromium } = await import("@sparticuz/chromium");
console.log(await chromium.executablePath());
