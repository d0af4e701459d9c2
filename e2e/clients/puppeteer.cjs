// Puppeteer's own examples, with only the endpoint changed: prints what they saw as one JSON line.
// Usage: node puppeteer.cjs ENDPOINT PAGES_URL   (ws:// is browserWSEndpoint, http:// is browserURL)
const puppeteer = require('puppeteer-core');

async function main() {
  const [endpoint, pages] = process.argv.slice(2);
  const how = endpoint.startsWith('ws') ? {browserWSEndpoint: endpoint} : {browserURL: endpoint};
  const browser = await puppeteer.connect({...how, protocolTimeout: 60_000});
  const seen = {version: await browser.version(), before: (await browser.pages()).length};

  const [first] = await browser.pages();
  await first.goto(`${pages}/first`);
  seen.first = await first.title();

  const page = await browser.newPage();
  await page.setViewport({width: 640, height: 480});
  await page.goto(`${pages}/page`);
  seen.title = await page.title();
  seen.heading = await page.$eval('h1', (element) => element.textContent);
  seen.sum = await page.evaluate((a, b) => a + b, 40, 2);
  const shot = Buffer.from(await page.screenshot());
  seen.png = [shot.readUInt32BE(16), shot.readUInt32BE(20)];
  seen.pdf = Buffer.from(await page.pdf()).subarray(0, 4).toString();

  const second = await browser.newPage();
  await second.setRequestInterception(true);
  second.on('request', (request) => request.url().endsWith('/other')
    ? request.respond({status: 200, contentType: 'text/html', body: '<title>made up</title>'})
    : request.continue());
  await second.goto(`${pages}/other`);
  seen.intercepted = await second.title();

  const context = await browser.createBrowserContext();
  const apart = await context.newPage();
  await apart.goto(`${pages}/page`);
  seen.cookies = (await apart.cookies()).length;
  await context.close();
  seen.after = (await browser.pages()).length;
  await browser.disconnect();
  console.log(JSON.stringify(seen));
}

main().catch((error) => { console.error(error); process.exitCode = 1; });
