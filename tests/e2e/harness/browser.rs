//! A real browser without a screen.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::{
    By, ChromiumLikeCapabilities, DesiredCapabilities, Key, LoggingPrefsLogLevel, WebDriver, WebElement,
};

use super::{Process, addresses, eventually};

/// Where people find the pictures.
const PICTURES: &str = "target/screenshots";

/// A browser; it ends with this value.
pub struct Browser {
    driver: WebDriver,
    _profile: TempDir,
    _process: Process,
}

impl Browser {
    /// Starts Debian's Chromium by its driver.
    pub async fn start() -> Self {
        let address = addresses::loopback();
        let port = addresses::free_port(address);
        let profile = TempDir::new().unwrap();
        // It listens at 127.0.0.1 and nowhere else.
        let args = [format!("--port={port}"), "--allowed-ips=".to_owned()];
        let program = Path::new("/usr/bin/chromedriver");
        assert!(program.exists(), "there is no chromedriver: `demo/setup.sh test` installs it");
        let process = Process::start("chromedriver", program, &args);
        let url = format!("http://127.0.0.1:{port}");
        eventually("the driver of the browser answers", || {
            let asked = reqwest::get(format!("{url}/status"));
            async move { asked.await.map(drop).map_err(|error| error.to_string()) }
        })
        .await;
        let mut wanted = DesiredCapabilities::chrome();
        let folder = format!("--user-data-dir={}", profile.path().display());
        for arg in [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--lang=en",
            &folder,
        ] {
            wanted.add_arg(arg).unwrap();
        }
        wanted.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
        let driver = WebDriver::new(&url, wanted).await.unwrap();
        Self { driver, _profile: profile, _process: process }
    }

    /// Ends it in good order.
    pub async fn quit(self) {
        self.driver.quit().await.unwrap();
    }

    /// Says something to the browser in its own protocol.
    async fn command(&self, method: &str, params: Value) {
        self.driver.cdp().send_raw(method, params).await.unwrap_or_else(|e| panic!("{method}: {e}"));
    }

    /// The size of the window, and whether it is dark.
    pub async fn looks(&self, width: u32, scheme: &str) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.command("Emulation.setDeviceMetricsOverride", metrics).await;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", features).await;
    }

    /// Whether pages may run scripts.
    pub async fn scripts(&self, run: bool) {
        self.command("Emulation.setScriptExecutionDisabled", json!({ "value": !run })).await;
    }

    /// Goes to an address.
    pub async fn goto(&self, url: &str) {
        self.driver.goto(url).await.unwrap_or_else(|e| panic!("{url}: {e}"));
    }

    /// The address it is at.
    pub async fn url(&self) -> String {
        self.driver.current_url().await.unwrap().to_string()
    }

    /// The one element that a selector means.
    pub async fn find(&self, selector: &str) -> WebElement {
        self.driver.find(By::Css(selector)).await.unwrap_or_else(|e| panic!("{selector}: {e}"))
    }

    /// What is read in an element.
    pub async fn text(&self, selector: &str) -> String {
        self.find(selector).await.text().await.unwrap()
    }

    /// Waits until an element reads so.
    pub async fn reads(&self, selector: &str, words: &str) {
        eventually(&format!("{words:?} in {selector}"), || async move {
            let found = self.driver.find(By::Css(selector)).await.map_err(|error| error.to_string())?;
            let text = found.text().await.map_err(|error| error.to_string())?;
            if text.contains(words) { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// Waits until an element does not read so.
    pub async fn reads_no_more(&self, selector: &str, words: &str) {
        eventually(&format!("no {words:?} in {selector}"), || async move {
            let found = self.driver.find(By::Css(selector)).await.map_err(|error| error.to_string())?;
            let text = found.text().await.map_err(|error| error.to_string())?;
            if text.contains(words) { Err(text) } else { Ok(()) }
        })
        .await;
    }

    /// Clicks what a selector means.
    pub async fn click(&self, selector: &str) {
        self.find(selector).await.click().await.unwrap_or_else(|e| panic!("{selector}: {e}"));
    }

    /// Writes into a field.
    pub async fn write(&self, selector: &str, text: &str) {
        self.find(selector).await.send_keys(text).await.unwrap();
    }

    /// Presses a key, wherever the focus is.
    pub async fn press(&self, key: Key) {
        self.driver.action_chain().send_keys(key).perform().await.unwrap();
    }

    /// What a script gives.
    pub async fn eval(&self, script: &str) -> Value {
        let result = self.driver.execute(script, Vec::new()).await;
        result.unwrap_or_else(|e| panic!("{script}: {e}")).json().clone()
    }

    /// The same, where the page may be about to go away.
    pub async fn try_eval(&self, script: &str) -> Result<Value, String> {
        let result = self.driver.execute(script, Vec::new()).await.map_err(|error| error.to_string())?;
        Ok(result.json().clone())
    }

    /// What stands on the console since the last call: errors and warnings.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.driver.browser_log().await.unwrap();
        let bad = log.into_iter().filter(|entry| ["SEVERE", "WARNING"].contains(&entry.level.as_str()));
        bad.map(|entry| format!("{}: {}", entry.level, entry.message)).collect()
    }

    /// Writes a picture of the whole page.
    pub async fn picture(&self, name: &str) {
        let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURES);
        fs::create_dir_all(&folder).unwrap();
        self.driver.screenshot(&folder.join(format!("{name}.png"))).await.unwrap();
    }
}
