//! A proxy on a loopback socket that hangs or breaks requests at one stage.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// What becomes of the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// They pass.
    Passes,
    /// No connection is accepted, and those that stand are closed.
    NoConnection,
    /// They are read, and nothing answers.
    NoHead,
    /// The head of a reply, and nothing after it.
    NoBody,
    /// A body that arrives a byte at a time, each after this long.
    Trickle(Duration),
    /// What arrives is no HTTP.
    Garbage,
    /// Half of a body, and the connection is closed.
    Truncated,
    /// A page of HTML, with status 200.
    Html,
}

/// Connections that the system keeps for a listener that does not accept: `BACKLOG` and one.
const BACKLOG: u32 = 1;

pub(super) struct Proxy {
    address: SocketAddr,
    stage: watch::Sender<Stage>,
    /// Fill the backlog.
    fillers: Mutex<Vec<TcpStream>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn before(engine: SocketAddr) -> Arc<Self> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(BACKLOG).unwrap();
        let address = listener.local_addr().unwrap();
        let (stage, seen) = watch::channel(Stage::Passes);
        let task = tokio::spawn(accept(listener, engine, seen));
        Arc::new(Self { address, stage, fillers: Mutex::default(), task })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) async fn set(&self, stage: Stage) {
        self.stage.send_replace(stage);
        self.fillers.lock().unwrap().clear();
        if stage == Stage::NoConnection {
            // Whoever accepts has heard of it.
            tokio::time::sleep(Duration::from_millis(20)).await;
            while let Ok(Ok(filler)) =
                tokio::time::timeout(Duration::from_millis(50), TcpStream::connect(self.address)).await
            {
                self.fillers.lock().unwrap().push(filler);
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, engine: SocketAddr, stage: watch::Receiver<Stage>) {
    let (mut opens, mut closes) = (stage.clone(), stage.clone());
    loop {
        opens.wait_for(|stage| *stage != Stage::NoConnection).await.unwrap();
        let accepted = tokio::select! {
            biased;
            _ = closes.wait_for(|stage| *stage == Stage::NoConnection) => continue,
            accepted = listener.accept() => accepted,
        };
        let (client, _) = accepted.unwrap();
        let (mut seen, mut closes) = (stage.clone(), stage.clone());
        tokio::spawn(async move {
            tokio::select! {
                _ = closes.wait_for(|stage| *stage == Stage::NoConnection) => {}
                _ = serve(client, engine, &mut seen) => {}
            }
        });
    }
}

/// Serves one connection, until it is closed or broken.
async fn serve(
    mut client: TcpStream,
    engine: SocketAddr,
    stage: &mut watch::Receiver<Stage>,
) -> std::io::Result<()> {
    while let Some(request) = message(&mut client).await? {
        let stage = *stage.borrow_and_update();
        if matches!(stage, Stage::Garbage) {
            client.write_all(b"220 smtp.example.com ESMTP\r\n").await?;
            return Ok(());
        }
        if matches!(stage, Stage::NoHead) {
            return std::future::pending().await;
        }
        if matches!(stage, Stage::Html) {
            let page = "<html><body>Sign in to the network</body></html>";
            let length = page.len();
            let reply = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{page}"
            );
            client.write_all(reply.as_bytes()).await?;
            continue;
        }
        let mut upstream = TcpStream::connect(engine).await?;
        upstream.write_all(&request).await?;
        let Some(reply) = message(&mut upstream).await? else { return Ok(()) };
        let body_at = head_end(&reply).unwrap();
        match stage {
            Stage::NoBody => {
                client.write_all(&reply[..body_at]).await?;
                return std::future::pending().await;
            }
            Stage::Trickle(every) => {
                client.write_all(&reply[..body_at]).await?;
                for byte in &reply[body_at..] {
                    tokio::time::sleep(every).await;
                    client.write_all(&[*byte]).await?;
                }
            }
            Stage::Truncated => {
                client.write_all(&reply[..body_at + (reply.len() - body_at) / 2]).await?;
                return Ok(());
            }
            _ => client.write_all(&reply).await?,
        }
    }
    Ok(())
}

/// One request or reply, head and body; `None` where the connection was closed before.
async fn message(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    loop {
        if let Some(body_at) = head_end(&read) {
            let head = String::from_utf8_lossy(&read[..body_at]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).map(str::trim);
            if read.len() >= body_at + length.map_or(0, |length| length.parse().unwrap()) {
                return Ok(Some(read));
            }
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    }
}

fn head_end(read: &[u8]) -> Option<usize> {
    read.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}
