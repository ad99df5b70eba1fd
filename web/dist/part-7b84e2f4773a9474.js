import{j as o}from"./part-e19986cd832fb2ab.js";var e=o(null);export{e as a};
